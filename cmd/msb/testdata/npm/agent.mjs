// Has Claude Code, driven by the Claude Agent SDK, call tools of a server. No model takes part: the SDK's control
// request mcp_call goes to Claude Code's own MCP client. Prints a line of JSON.
//
//   node agent.mjs CLAUDE COMMAND [ARGUMENT…]
import { query } from '@anthropic-ai/claude-agent-sdk';

const [claude, command, ...args] = process.argv.slice(2);
let end;
const noPrompts = new Promise(resolve => { end = resolve; });
const session = query({
  prompt: (async function* () { await noPrompts; })(),
  options: {
    pathToClaudeCodeExecutable: claude,
    settingSources: [],
    strictMcpConfig: true,
    mcpServersDelivery: 'initialize',
    mcpServers: { msb: { type: 'stdio', command, args } },
  },
});
const call = (tool, input) => session.request({ subtype: 'mcp_call', tool: 'mcp__msb__' + tool, arguments: input });

const good = (await call('sandbox_list', {})).response;
const bad = await call('fs_read', { path: 'x' }).then(() => '', String);
const [{ status, tools }] = await session.mcpServerStatus();
console.log(JSON.stringify({ status, tools: tools.map(tool => tool.name), good, bad }));
end();
session.close();
