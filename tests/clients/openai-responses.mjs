// Stateless replay of items; with "prev" as third argument previous_response_id instead.
import OpenAI from 'openai';
import * as t from './lib.mjs';

const client = new OpenAI({ baseURL: t.base, apiKey: t.key });
const tools = t.openaiTools.map(({ function: f }) => ({ type: 'function', ...f, strict: false }));
const byId = process.argv[4] === 'prev';

async function ask(input, previous) {
  const body = {
    model: t.model, instructions: t.system, input, tools, store: byId,
    ...(byId && previous ? { previous_response_id: previous } : {}),
  };
  if (!t.stream) return client.responses.create(body);
  return client.responses.stream(body).finalResponse();
}

t.main(async () => {
  let input = [{ role: 'user', content: t.question }];
  let previous;
  for (let turns = 1; turns < 6; turns++) {
    const answer = await ask(input, previous);
    t.same('status', answer.status, 'completed');
    t.spent(answer.usage.output_tokens);
    const calls = answer.output.filter((item) => item.type === 'function_call');
    if (!calls.length) return t.checkTask(turns, answer.output_text);
    if (turns === 1) t.same('first text', answer.output_text.trim(), t.firstText);
    const outputs = calls.map((call) => ({
      type: 'function_call_output', call_id: call.call_id,
      output: t.runTool(call.name, JSON.parse(call.arguments)),
    }));
    previous = answer.id;
    if (byId) t.same('retrieve', (await client.responses.retrieve(previous)).id, previous);
    input = byId ? outputs : [...input, ...answer.output, ...outputs];
  }
  return t.check('the task ends', false);
});
