// Vercel's AI SDK over each of its providers; then a second question on top of the first history.
import { generateText, streamText, tool, jsonSchema, stepCountIs } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import * as t from './lib.mjs';

const options = { baseURL: t.base, apiKey: t.key };
const model = {
  chat: () => createOpenAI(options).chat(t.model),
  responses: () => createOpenAI(options).responses(t.model),
  anthropic: () => createAnthropic(options)(t.model),
  compatible: () => createOpenAICompatible({ name: 'rollgate', includeUsage: true, ...options })(t.model),
}[process.argv[4]]();
const tools = Object.fromEntries(Object.entries(t.schemas).map(([name, schema]) => [name, tool({
  description: `Tool ${name}`, inputSchema: jsonSchema(schema), execute: async (args) => t.runTool(name, args),
})]));

async function ask(messages) {
  const body = { model, system: t.system, messages, tools, stopWhen: stepCountIs(6) };
  if (!t.stream) return generateText(body);
  const result = streamText(body);
  await result.consumeStream();
  return { text: await result.text, steps: await result.steps, response: await result.response };
}

t.main(async () => {
  const messages = [{ role: 'user', content: t.question }];
  const first = await ask(messages);
  for (const step of first.steps) t.spent(step.usage.outputTokens);
  t.checkTask(first.steps.length, first.text);
  messages.push(...first.response.messages, { role: 'user', content: 'Sure?' });
  const second = await ask(messages);
  for (const step of second.steps) t.spent(step.usage.outputTokens);
  t.same('second answer', second.text.trim(), t.finalText);
});
