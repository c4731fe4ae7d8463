// An MCP server on stdin and stdout with two tools.
import readline from 'node:readline';

const tools = [
  { name: 'list_files', description: 'l', inputSchema: { type: 'object', properties: {} } },
  { name: 'read_file', description: 'r', inputSchema: { type: 'object', properties: { path: { type: 'string' } } } },
];
const texts = { list_files: 'notes.txt', read_file: 'The secret code is MAGENTA-4417.' };

function answer({ method, params }) {
  if (method === 'initialize') {
    return { protocolVersion: params.protocolVersion, capabilities: { tools: {} },
      serverInfo: { name: 'f', version: '1' } };
  }
  if (method === 'tools/list') return { tools };
  if (method === 'tools/call') return { content: [{ type: 'text', text: texts[params.name] }] };
  return {};
}
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const m = JSON.parse(line);
  if (m.id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id: m.id, result: answer(m) }));
});
