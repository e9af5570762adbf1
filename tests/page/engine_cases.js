/* Evaluated by test_engine.py in the page of engine_page.py: the engine computes cases of one model.
 *
 * A case is a text, or an input with edits, and with the input of a pass that edits may name as their source. Its answer
 * is what the last positions predict and the weights of all heads, tokens, or an error. All numbers are returned as one
 * string. */
async ({ name, cases, predicted }) => {
  const { engine } = globalThis;
  const model = await globalThis.openModel(name);

  // cases that follow each other share their sources; of other passes only what they keep is needed
  const passes = new Map();
  const run = (input) => {
    const tokens = JSON.stringify(input);
    if (!passes.has(tokens)) passes.clear();
    if (!passes.has(tokens)) passes.set(tokens, engine.forward(model, input, { logits: 1 }));
    return passes.get(tokens);
  };
  const parts = [];
  const answers = cases.map(({ text, language, input, edits, other, limit }, index) => {
    try {
      if (text !== undefined) {
        const { tokens } = engine.prepareText(model, text, language);
        return { tokens, target: model.isEncoderDecoder ? engine.prepareAnswer(model, tokens).target : undefined };
      }
      const sources = { other: run(other) };
      if (limit) return { tokens: Array.from(engine.generate(model, input, { edits, sources, limit }), ({ token }) => token) };
      // an edited pass takes over what comes before its first edit, which must change nothing
      const reuse = index % 3 ? undefined : engine.forward(model, input, { logits: 1 });
      const pass = engine.forward(model, input, { edits, sources, logits: predicted, reuse });
      parts.push(pass.logits);
      for (const site of pass.sites) {
        for (let head = 0; head < site.info.heads; head++) {
          const map = site.open(head);
          for (let query = 0; query < site.queries; query++) {
            const row = new Float32Array(site.keys);
            map.readRow(query, row);
            parts.push(row);
          }
        }
      }
      return {};
    } catch (error) {
      if (!(error instanceof engine.EngineError)) throw error;
      return { error: error.message };
    }
  });
  const reader = new FileReader();
  const url = await new Promise((resolve) => {
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(new Blob(parts));
  });
  return { answers, numbers: url.slice(url.indexOf(",") + 1) };
};
