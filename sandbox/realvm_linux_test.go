//go:build vmtest

package sandbox

// realMachines is true where the machines are real.
const realMachines = true

// CallerEnv and CallOnce are for TestMain, which is in the other package of the tests.
const CallerEnv = callerEnv

var CallOnce = callOnce
