// The checklist of go_test.go for the official Node client. The address and the key come
// from the test that runs it; it prints what is wrong and ends with 1, or with 0.
import assert from "node:assert/strict";
import http from "node:http";
import OpenAI from "openai";

const base = process.env.TAILOR_URL;
const apiKey = process.env.TAILOR_KEY;
const model = "tailor-4m";
const prompt = "User: I would like to book a table for two people in San Jose tonight.\nAssistant:";
const client = (more = {}) => new OpenAI({ baseURL: base + "/v1", apiKey, maxRetries: 0, ...more });
const completion = (more = {}) => ({ model, prompt, max_tokens: 24, seed: 7, ...more });

const checks = {
  async models() {
    const page = await client().models.list();
    assert.deepEqual(page.data.map((m) => m.id), [model]);
    assert.equal((await client().models.retrieve(model)).id, model);
  },

  async completions() {
    const plain = await client().completions.create(completion());
    assert.equal(plain.object, "text_completion");
    assert.ok(plain.choices[0].text);
    assert.equal(plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens);
    const again = await client().completions.create(completion());
    assert.equal(again.choices[0].text, plain.choices[0].text);
    assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0);
    let text = "", usage;
    const stream = await client().completions.create(completion({ stream: true, stream_options: { include_usage: true } }));
    for await (const chunk of stream) {
      for (const choice of chunk.choices) text += choice.text;
      if (chunk.usage) usage = chunk.usage;
    }
    assert.equal(text, plain.choices[0].text);
    assert.equal(usage.total_tokens, plain.usage.total_tokens);
    const several = await client().completions.create(completion({ prompt: ["a table", "a train"], n: 2, stop: ["\n"], max_tokens: 4 }));
    assert.deepEqual(several.choices.map((c) => c.index), [0, 1, 2, 3]);
  },

  async logprobs() {
    const out = await client().completions.create(completion({ echo: true, logprobs: 3, max_tokens: 0 }));
    const l = out.choices[0].logprobs;
    assert.equal(out.choices[0].text, prompt);
    assert.equal(l.tokens.join(""), prompt);
    assert.equal(l.tokens.length, out.usage.prompt_tokens);
    assert.equal(l.token_logprobs[0], null);
    for (let i = 1; i < l.tokens.length; i++) assert.equal(l.top_logprobs[i][l.tokens[i]], l.token_logprobs[i]);
  },

  async chat() {
    const body = {
      model, seed: 3, max_completion_tokens: 16, logprobs: true, top_logprobs: 2,
      messages: [{ role: "developer", content: "Be brief." }, { role: "user", content: [{ type: "text", text: "I need a taxi." }] }],
    };
    const plain = await client().chat.completions.create(body);
    assert.equal(plain.choices[0].message.role, "assistant");
    assert.equal(plain.choices[0].logprobs.content.length, plain.usage.completion_tokens);
    // The helper checks the order of what comes, as well as adding it up.
    const streamed = await client().chat.completions.stream(body).finalChatCompletion();
    assert.equal(streamed.choices[0].message.content, plain.choices[0].message.content);
    assert.deepEqual(streamed.choices[0].logprobs.content, plain.choices[0].logprobs.content);
  },

  async errors() {
    for (const [change, key, kind, param, code] of [
      [{ temperature: 9 }, apiKey, OpenAI.BadRequestError, "temperature", null],
      [{ model: "gpt-9" }, apiKey, OpenAI.NotFoundError, "model", "model_not_found"],
      [{ max_tokens: 5000 }, apiKey, OpenAI.BadRequestError, "max_tokens", "context_length_exceeded"],
      [{}, "wrong", OpenAI.AuthenticationError, null, "invalid_api_key"],
    ]) {
      for (const stream of [false, true]) {
        await assert.rejects(client({ apiKey: key }).completions.create(completion({ ...change, stream })), (e) => {
          assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
          assert.equal(e.param, param);
          assert.equal(e.code, code);
          assert.ok(e.requestID);
          return true;
        });
      }
    }
  },

  async abortedStreams() {
    const stream = await client().completions.create(completion({ stream: true, max_tokens: 900, ignore_eos: true }));
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 3) stream.controller.abort();
    }
    assert.ok(chunks < 900);
  },

  async retries() {
    let seen = 0, failures = 2;
    const flaky = http.createServer((req, res) => {
      if (++seen <= failures) {
        res.writeHead(503, { "retry-after-ms": "1" }).end();
        return;
      }
      const to = http.request(base + req.url, { method: req.method, headers: { ...req.headers, host: new URL(base).host } }, (from) => {
        res.writeHead(from.statusCode, from.headers);
        from.pipe(res);
      });
      req.pipe(to);
    });
    await new Promise((ready) => flaky.listen(0, "127.0.0.1", ready));
    const through = client({ baseURL: `http://127.0.0.1:${flaky.address().port}/v1`, maxRetries: 2 });
    await through.completions.create(completion({ max_tokens: 4 }));
    assert.equal(seen, 3);
    seen = failures = 0;
    await assert.rejects(
      through.completions.create(completion({ max_tokens: 900, ignore_eos: true }), { headers: { "x-request-timeout": "0.02" } }),
      (e) => e.status === 504,
    );
    assert.equal(seen, 1);
    flaky.closeAllConnections();
    flaky.close();
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok   ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}: ${e.stack}`);
  }
}
process.exit(failed ? 1 : 0);
