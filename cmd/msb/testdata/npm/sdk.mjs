// Connects both generations of the TypeScript SDK to a server, each in the revisions that it has, all at once, and prints
// a line of JSON for each.
//
//   node sdk.mjs COMMAND [ARGUMENT…]
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client as Client2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';

const [command, ...args] = process.argv.slice(2);
const server = { command, args, stderr: 'inherit' };
const me = { name: 'msb-test', version: '1' };

// InPlace is not the SDK's own transport to the letter: then server/discover goes over the connection that is used.
class InPlace extends Stdio2 {}

// DiscoverFirst asks server/discover, and then goes on as if it had understood nothing.
class DiscoverFirst extends Stdio2 {
  async start() {
    await super.start();
    const receive = this.onmessage;
    const answer = new Promise(resolve => { this.onmessage = resolve; });
    const meta = { protocolVersion: '2026-07-28', clientInfo: me, clientCapabilities: {} };
    const _meta = Object.fromEntries(Object.entries(meta).map(([key, value]) => ['io.modelcontextprotocol/' + key, value]));
    await this.send({ jsonrpc: '2.0', id: 'first', method: 'server/discover', params: { _meta } });
    const { error } = await answer;
    if (error) throw new Error('server/discover: ' + error.message);
    this.onmessage = receive;
  }
}

const second = (options, Transport = Stdio2) => [new Client2(me, options), new Transport(server)];
const clients = {
  'sdk 1': [new Client1(me), new Stdio1(server)],
  'client 2': second({}),
  'client 2, auto': second({ versionNegotiation: { mode: 'auto' } }),
  'client 2, auto in place': second({ versionNegotiation: { mode: 'auto' } }, InPlace),
  'client 2, discover first': second({}, DiscoverFirst),
  'client 2, 2026-07-28': second({ versionNegotiation: { mode: { pin: '2026-07-28' } } }, InPlace),
  'client 2, 2025-06-18': second({ supportedProtocolVersions: ['2025-06-18'] }),
  'client 2, 2024-11-05': second({ supportedProtocolVersions: ['2024-11-05'] }),
};

async function converse(client, transport) {
  const said = { sent: [] };
  const send = transport.send.bind(transport);
  transport.send = (message, options) => (said.sent.push(message.method), send(message, options));
  transport.setProtocolVersion = version => { said.version = version; };
  await client.connect(transport);
  said.tools = (await client.listTools()).tools.length;
  said.prompts = (await client.listPrompts()).prompts.length;
  said.good = await client.callTool({ name: 'sandbox_list', arguments: {} });
  said.bad = await client.callTool({ name: 'fs_read', arguments: { path: 'x' } });
  await client.close();
  return said;
}

await Promise.all(Object.entries(clients).map(async ([name, client]) => {
  const said = await converse(...client).catch(err => ({ error: String(err) }));
  console.log(JSON.stringify({ name, ...said }));
}));
