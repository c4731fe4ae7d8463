// Clients of other vendors, whose paths, headers and checks of an answer are their own.
import { AzureOpenAI } from 'openai';
import Groq from 'groq-sdk';
import { OpenRouter } from '@openrouter/sdk';
import { generateText, rawTool, streamText } from 'xsai';
import * as t from './lib.mjs';

const maxRetries = 0;
const azure = (options) => () => {
  const client = new AzureOpenAI({ apiKey: t.key, apiVersion: '2025-01-01-preview', maxRetries, ...options });
  return (body) => client.chat.completions.create(body);
};
const clients = {
  azure: azure({ endpoint: t.anthropicBase }), // the model's name goes into the path, with its slash
  deployment: azure({ endpoint: t.anthropicBase, deployment: 'd' }),
  groq: () => {
    const client = new Groq({ apiKey: t.key, baseURL: t.anthropicBase, maxRetries });
    return (body) => client.chat.completions.create(body);
  },
  openrouter: () => {
    const client = new OpenRouter({ apiKey: t.key, serverURL: t.base });
    return (body) => client.chat.send({ chatRequest: body });
  },
};

// What one answer said, put together if it is streamed. OpenRouter's client renames what has underlines.
async function ask(create, messages) {
  const body = { model: t.model, messages, tools: t.openaiTools, stream: t.stream };
  if (t.stream) body.stream_options = { include_usage: true };
  const answer = await create(body);
  if (!t.stream) return { ...answer.choices[0].message, usage: answer.usage };
  const whole = { role: 'assistant', content: '' };
  const calls = [];
  for await (const chunk of answer) {
    whole.usage = chunk.usage ?? whole.usage;
    const delta = chunk.choices[0]?.delta ?? {};
    whole.content += delta.content ?? '';
    for (const part of delta.tool_calls ?? delta.toolCalls ?? []) {
      calls[part.index] ??= { id: part.id, type: 'function', function: { name: part.function.name, arguments: '' } };
      calls[part.index].function.arguments += part.function.arguments ?? '';
    }
  }
  return calls.length ? { ...whole, tool_calls: calls, toolCalls: calls } : whole;
}

async function loop(create) {
  const messages = [{ role: 'system', content: t.system }, { role: 'user', content: t.question }];
  for (let turns = 1; turns < 6; turns++) {
    const { usage, ...message } = await ask(create, messages);
    t.spent(usage?.completion_tokens ?? usage?.completionTokens);
    messages.push(message);
    const calls = message.tool_calls ?? message.toolCalls ?? [];
    if (!calls.length) return t.checkTask(turns, message.content);
    for (const { id, function: f } of calls) {
      const content = t.runTool(f.name, JSON.parse(f.arguments));
      messages.push({ role: 'tool', tool_call_id: id, toolCallId: id, content });
    }
  }
  return t.check('the task ends', false);
}

async function xsai() {
  const tools = Object.entries(t.schemas).map(([name, parameters]) => rawTool({
    name, parameters, description: `Tool ${name}`, execute: (a) => t.runTool(name, a) }));
  const messages = [{ role: 'system', content: t.system }, { role: 'user', content: t.question }];
  const body = { apiKey: t.key, baseURL: `${t.base}/`, model: t.model, messages, tools, maxSteps: 6 };
  const result = t.stream ? streamText({ ...body, streamOptions: { includeUsage: true } }) : await generateText(body);
  if (t.stream) for await (const _ of result.textStream);
  const steps = await result.steps;
  for (const step of steps) t.spent(step.usage.completion_tokens ?? step.usage.outputTokens);
  t.checkTask(steps.length, steps.at(-1).text);
}

t.main(() => (process.argv[4] === 'xsai' ? xsai() : loop(clients[process.argv[4]]())));
