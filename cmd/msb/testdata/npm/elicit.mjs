// Has both generations of the TypeScript SDK ask their user over HTTP, one after the other, and prints a line of JSON for
// each: what the tool said, and what the user was shown.
//
//   node elicit.mjs URL TOKEN
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as HTTP1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Client as Client2, StreamableHTTPClientTransport as HTTP2 } from '@modelcontextprotocol/client';

const [url, token] = process.argv.slice(2);
const requestInit = { headers: { Authorization: 'Bearer ' + token } };
const me = { name: 'msb-test', version: '1' };
const can = { capabilities: { elicitation: {} } };
const clients = {
  'sdk-1': [new Client1(me, can), new HTTP1(new URL(url), { requestInit })],
  'client-2': [new Client2(me, can), new HTTP2(new URL(url), { requestInit })],
  'client-2-new': [new Client2(me, { ...can, versionNegotiation: { mode: { pin: '2026-07-28' } } }), new HTTP2(new URL(url), { requestInit })],
};

for (const [name, [client, transport]] of Object.entries(clients)) {
  const said = { name };
  const answer = ({ params }) => {
    said.asked = params.message;
    return { action: 'accept', content: { decision: 'allow for an hour', why: 'from node' } };
  };
  try {
    client instanceof Client1 ? client.setRequestHandler(ElicitRequestSchema, answer) : client.setRequestHandler('elicitation/create', answer);
    await client.connect(transport);
    said.result = await client.callTool({ name: 'network', arguments: { action: 'request', to: name + '.example', why: 'a test' } });
    await client.close();
  } catch (err) {
    said.error = String(err);
  }
  console.log(JSON.stringify(said));
}
