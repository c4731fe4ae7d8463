// The connection breaks before the answer arrives; the SDK asks again by itself.
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import * as t from './lib.mjs';

t.main(async () => {
  if (process.argv[4] === 'anthropic') {
    const client = new Anthropic({ baseURL: t.anthropicBase, apiKey: t.key });
    const answer = await client.messages.create({
      model: t.model, max_tokens: 4096, messages: [{ role: 'user', content: t.question }],
    });
    t.same('stop_reason', answer.stop_reason, 'end_turn');
    t.spent(answer.usage.output_tokens);
    return;
  }
  const client = new OpenAI({ baseURL: t.base, apiKey: t.key });
  const answer = await client.chat.completions.create({
    model: t.model, messages: [{ role: 'user', content: t.question }],
  });
  t.same('finish', answer.choices[0].finish_reason, 'stop');
  t.spent(answer.usage.completion_tokens);
});
