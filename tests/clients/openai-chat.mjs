import OpenAI from 'openai';
import * as t from './lib.mjs';

const client = new OpenAI({ baseURL: t.base, apiKey: t.key });

async function ask(messages) {
  const body = { model: t.model, messages, tools: t.openaiTools, temperature: 0.5 };
  if (!t.stream) return client.chat.completions.create(body);
  return client.chat.completions.stream({ ...body, stream_options: { include_usage: true } })
    .finalChatCompletion();
}

t.main(async () => {
  const messages = [{ role: 'system', content: t.system }, { role: 'user', content: t.question }];
  for (let turns = 1; turns < 6; turns++) {
    const answer = await ask(messages);
    const { message, finish_reason: reason } = answer.choices[0];
    t.spent(answer.usage.completion_tokens);
    t.check('no tags in content', !/<\/?(think|tool_call)>/.test(message.content ?? ''), message);
    messages.push(message);
    if (!message.tool_calls?.length) {
      t.same('finish', reason, 'stop');
      return t.checkTask(turns, message.content);
    }
    t.same('finish', reason, 'tool_calls');
    if (turns === 1) t.same('first text', message.content.trim(), t.firstText);
    for (const call of message.tool_calls) {
      messages.push({
        role: 'tool', tool_call_id: call.id,
        content: t.runTool(call.function.name, JSON.parse(call.function.arguments)),
      });
    }
  }
  return t.check('the task ends', false);
});
