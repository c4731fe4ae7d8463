// Places of a branch that one wants to reach: answers, calls of tools, drift, truncation; and the way between a message and its tokens.

// Of each turn its message's index; of each message the turn that wrote it, or -1.
export function turnMessages(branch) {
  if (!branch.places) {
    const messages = [];
    const turnOf = branch.messages.map((message, index) => (message.generated ? messages.push(index) - 1 : -1));
    branch.places = {messages, turnOf};
  }
  return branch.places;
}

// The token that a message begins with, as far as turns tell: what stands between two answers begins where the first one ends.
export function tokenOfMessage(branch, index) {
  const {turnOf} = turnMessages(branch);
  if (turnOf[index] >= 0) return branch.start + (branch.turns[turnOf[index]]?.start ?? 0);
  for (let i = index - 1; i >= 0; i--) if (turnOf[i] >= 0) return branch.start + (branch.turns[turnOf[i]]?.end ?? 0);
  return 0;
}

// The message that a token is of, or near to.
export function messageOfToken(branch, at) {
  const {messages} = turnMessages(branch);
  for (let turn = branch.turns.length - 1; turn >= 0; turn--) {
    const {start, end} = branch.turns[turn];
    if (start === null || at < branch.start + start) continue;
    return Math.min(messages[turn] + (at >= branch.start + end ? 1 : 0), branch.messages.length - 1);
  }
  return 0;
}

const STOP_KINDS = [["answers", "answer"], ["tools", "tool"], ["drift", "drift"], ["truncated", "truncation"]];

// [{name, title, stops: [{message, token}]}], each in the order of the branch. nodes: of the state, by response id.
export function stopsOf(branch, nodes) {
  const {messages} = turnMessages(branch);
  const stop = message => ({message, token: tokenOfMessage(branch, message)});
  const turns = branch.turns.map((turn, i) => ({turn, ...stop(messages[i])}));
  const found = {
    answers: turns,
    tools: branch.messages.map((m, i) => ((m.tool_calls || []).length || m.role === "tool" ? stop(i) : null)).filter(Boolean),
    drift: branch.driftPlaces.map(place => ({message: messageOfToken(branch, place.position), token: place.position})),
    truncated: turns.filter(({turn}) => turn.finish_reason === "length" || nodes.get(turn.response_id)?.truncated),
  };
  return STOP_KINDS.map(([name, title]) => ({name, title, stops: found[name]}));
}

// The answer that a look for what went wrong begins with: the first one that was cut or could not be parsed, else the last one.
export function firstFault(nodes) {
  const all = [...nodes].sort((a, b) => a.seq - b.seq);
  return all.find(n => n.truncated || n.parse_warning || n.finish_reason === "length") || all[all.length - 1];
}
