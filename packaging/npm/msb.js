#!/usr/bin/env node
// Runs the program msb beside this file, with the same arguments, standard streams, signals and exit code.
'use strict';
const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const path = require('node:path');

const msb = path.join(__dirname, 'msb');
const args = process.argv.slice(2);

// Node.js 22.15 and newer: msb takes this process's place.
if (process.execve) process.execve(msb, [msb, ...args]);

const child = spawn(msb, args, { stdio: 'inherit' });
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']) {
  // A terminal's keys send SIGINT and SIGQUIT to msb too, which counts them.
  const fromKeys = process.stdin.isTTY && (signal === 'SIGINT' || signal === 'SIGQUIT');
  process.on(signal, () => fromKeys || child.kill(signal));
}
child.on('error', err => {
  console.error(`msb: ${err.message}`);
  process.exit(126);
});
child.on('exit', (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
  process.exitCode = code ?? 128 + constants.signals[signal];
});
