// Leaves a slow stream after its first deltas, then asks the same again and gets it whole.
import OpenAI from 'openai';
import * as t from './lib.mjs';

const client = new OpenAI({ baseURL: t.base, apiKey: t.key, maxRetries: 0 });
const body = {
  model: t.model, messages: [{ role: 'user', content: t.question }], tools: t.openaiTools,
  stream: true,
};

t.main(async () => {
  let deltas = 0;
  const gone = await client.chat.completions.create(body);
  for await (const chunk of gone) {
    if (chunk.choices[0]?.delta?.reasoning_content && ++deltas === 3) break;
  }
  gone.controller.abort();
  t.same('deltas before the abort', deltas, 3);
  let text = '';
  let reason;
  let usage;
  const again = await client.chat.completions.create({
    ...body, stream_options: { include_usage: true },
  });
  for await (const chunk of again) {
    text += chunk.choices[0]?.delta?.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  t.same('text', text.trim(), t.firstText);
  t.same('finish', reason, 'tool_calls');
  t.spent(usage.completion_tokens);
});
