// OpenAI's Agents SDK with a tool whose result is a picture (third argument: base64 of a PNG).
import { Agent, Runner, OpenAIProvider, tool, setTracingDisabled } from '@openai/agents';
import OpenAI from 'openai';
import * as t from './lib.mjs';

const [picture, form] = process.argv.slice(4);
const results = {
  url: { type: 'image', image: `data:image/png;base64,${picture}` },
  data: { type: 'image', image: { data: picture, mediaType: 'image/png' }, detail: 'high' },
  parts: [{ type: 'text', text: 'taken' }, { type: 'image', image: { data: picture, mediaType: 'image/png' } }],
};
let calls = 0;
const screenshot = tool({
  name: 'screenshot',
  description: 'Takes a picture',
  parameters: { type: 'object', properties: {}, required: [], additionalProperties: true },
  strict: false,
  execute: async () => { calls += 1; return results[form]; },
});

t.main(async () => {
  setTracingDisabled(true);
  const provider = new OpenAIProvider({
    openAIClient: new OpenAI({ baseURL: t.base, apiKey: t.key }), useResponses: true,
  });
  const runner = new Runner({ modelProvider: provider, tracingDisabled: true, model: t.model });
  const agent = new Agent({ name: 'eyes', instructions: t.system, tools: [screenshot] });
  let result;
  if (t.stream) {
    result = await runner.run(agent, 'Look.', { stream: true });
    for await (const event of result) t.check('events', !!event.type);
    await result.completed;
  } else {
    result = await runner.run(agent, 'Look.');
  }
  t.same('answer', result.finalOutput, 'I see grey.');
  t.same('calls', calls, 1);
  for (const answer of result.rawResponses) t.spent(answer.usage.outputTokens);
});
