// Package sandbox starts sandboxes and is msb's Go SDK: a microVM with the gateway as its only way
// out, a supervisor process that owns both, and the files under $MSB_HOME that belong to them.
//
// Data flow. Start resolves the image in the caller's process (so that progress and errors are the
// caller's), takes a run directory under $MSB_HOME and starts the supervisor (internal/supervisor), which is msb itself,
// re-executed. It hands it a plan (internal/state), reads its status lines, and speaks the agent's protocol with it over
// an inherited socket. When that socket closes, whoever closed it and why, the supervisor ends the machine and removes
// the run directory. Later commands reach a sandbox with a name over the socket in its directory.
//
// It has many files because it is the SDK: each thing that can be done with a sandbox is one, and shares Home and Sandbox
// with the others. What isn't public is in packages below.
//
// What it does not protect against: a caller that is itself hostile. Whoever may start a sandbox
// chooses its policy and may read its secrets' sources. It also gives no promise about a run directory
// on a network file system, where file locks may not hold.
package sandbox
