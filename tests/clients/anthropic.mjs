import Anthropic from '@anthropic-ai/sdk';
import * as t from './lib.mjs';

const client = new Anthropic({ baseURL: t.anthropicBase, apiKey: t.key });
const tools = Object.entries(t.schemas).map(([name, input_schema]) => ({
  name, description: `Tool ${name}`, input_schema,
}));

async function ask(messages) {
  const body = {
    model: t.model, max_tokens: 4096, system: [{ type: 'text', text: t.system }], messages, tools,
    thinking: { type: 'enabled', budget_tokens: 1024 },
  };
  return t.stream ? client.messages.stream(body).finalMessage() : client.messages.create(body);
}

t.main(async () => {
  const messages = [{ role: 'user', content: t.question }];
  const counted = await client.messages.countTokens({
    model: t.model, system: t.system, messages, tools,
  });
  for (let turns = 1; turns < 6; turns++) {
    const answer = await ask(messages);
    if (turns === 1) t.same('counted', answer.usage.input_tokens, counted.input_tokens);
    t.spent(answer.usage.output_tokens);
    const thoughts = answer.content.filter((b) => b.type === 'thinking');
    t.check('thought with signature', thoughts.length === 1 && thoughts[0].signature, thoughts);
    const text = answer.content.filter((b) => b.type === 'text').map((b) => b.text).join('');
    const uses = answer.content.filter((b) => b.type === 'tool_use');
    messages.push({ role: 'assistant', content: answer.content });
    if (!uses.length) {
      t.same('stop_reason', answer.stop_reason, 'end_turn');
      return t.checkTask(turns, text);
    }
    t.same('stop_reason', answer.stop_reason, 'tool_use');
    if (turns === 1) t.same('first text', text.trim(), t.firstText);
    messages.push({
      role: 'user',
      content: uses.map((use) => ({
        type: 'tool_result', tool_use_id: use.id, content: t.runTool(use.name, use.input),
        cache_control: { type: 'ephemeral' },
      })),
    });
    for (const m of messages.slice(0, -1)) {
      for (const b of Array.isArray(m.content) ? m.content : []) delete b.cache_control;
    }
  }
  return t.check('the task ends', false);
});
