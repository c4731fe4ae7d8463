import { createAgent, tool } from 'langchain';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import * as t from './lib.mjs';

const llm = new ChatOpenAI({
  model: t.model, apiKey: t.key, configuration: { baseURL: t.base }, maxRetries: 0, useResponsesApi: process.argv[4] === 'responses',
});
const list = tool((a) => t.runTool('list_files', a),
  { name: 'list_files', description: 'List', schema: z.object({}) });
const read = tool((a) => t.runTool('read_file', a), {
  name: 'read_file', description: 'Read',
  schema: z.object({
    path: z.string(), max: z.number().optional(), note: z.string().optional(),
  }),
});

t.main(async () => {
  const agent = createAgent({ model: llm, tools: [list, read], systemPrompt: t.system });
  const input = { messages: [{ role: 'user', content: t.question }] };
  let messages = [];
  if (t.stream) {
    let deltas = 0;
    const steps = await agent.stream(input, { streamMode: ['messages', 'values'] });
    for await (const [mode, step] of steps) {
      if (mode === 'values') messages = step.messages;
      else deltas += 1;
    }
    t.check('deltas', deltas > 5, deltas);
  } else {
    ({ messages } = await agent.invoke(input));
  }
  const answers = messages.filter((m) => m.getType() === 'ai');
  for (const m of answers) t.spent(m.usage_metadata?.output_tokens);
  const last = answers.at(-1);
  t.checkTask(answers.length, last.text ?? last.content);
});
