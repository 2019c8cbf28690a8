// Clients from npm, unchanged, at the address that is given; prints what each was answered, as JSON.
import assert from "node:assert/strict";
import OpenAI from "openai";
import * as deepl from "deepl-node";
import { Translate } from "translate";

const [address, key, text] = process.argv.slice(2);
const found = {};

const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey: key, maxRetries: 0 });
const asked = { model: "language-model", prompt: text, max_tokens: 9, temperature: 0 };
const whole = await openai.completions.create(asked);
found.completion = whole.choices[0].text;
found.stream = [];
for await (const part of await openai.completions.create({ ...asked, stream: true })) {
  found.stream.push(part.choices[0].text);
}
const scored = await openai.completions.create({ ...asked, logprobs: 1, n: 2 });
found.logprobs = scored.choices.map((choice) => choice.logprobs.token_logprobs);
const vectors = await openai.embeddings.create({ model: "classification", input: [text, "a dog"] });
found.embeddings = vectors.data.map((one) => Array.from(one.embedding));
found.models = (await openai.models.list()).data.map((one) => one.id).sort();
await assert.rejects(openai.completions.create({ ...asked, model: "gpt" }), OpenAI.NotFoundError);
const stranger = new OpenAI({ baseURL: `${address}/v1`, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);

const client = new deepl.DeepLClient(key, { serverUrl: address, maxRetries: 0 });
const translated = await client.translateText([text, "a dog"], "de", "en-GB");
found.deepl = translated.map((one) => [one.text, one.detectedSourceLang]);
found.used = (await client.getUsage()).character.count;
const unknown = new deepl.DeepLClient("wrong", { serverUrl: address, maxRetries: 0 });
await assert.rejects(unknown.translateText(text, "de", "en-GB"), deepl.AuthorizationError);

const translate = Translate({ engine: "libre", url: `${address}/translate`, key, from: "de", to: "en" });
found.translate = await translate(text);
const other = Translate({ engine: "libre", url: `${address}/translate`, key: "wrong", from: "de", to: "en" });
await assert.rejects(other("another text"), /key is missing or wrong/);

console.log(JSON.stringify(found));
