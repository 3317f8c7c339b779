// Package supervisor is the process that owns one sandbox: its gateway and secrets, its machine, its records and its
// directory. Package sandbox starts it: msb itself, executed again.
//
// Data flow. Run reads the plan from an inherited descriptor, opens the records and the control socket, starts the VMM,
// builds the gateway on the guest's link, shakes hands with the agent, serves the host's directories and then the agent's
// Exec, to the caller over an inherited socket and to later commands over the control socket. The sandbox ends when its
// caller goes, unless it has a name, and when its machine, its policy or its time ends it: the guest first, so that its
// last bytes are judged and written down. Why it ended goes to the caller as the last status line, and to end.json of
// one with a name.
//
// It has more than 35 files because each part of a sandbox's life (ports, pods, children, jobs, caches, pauses, grants) is
// one, and all of them share the one supervisor, its locks and the order in which it ends them.
//
// What it does not protect against: the user who started it. Whoever may signal the process may end it.
package supervisor
