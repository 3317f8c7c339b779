package supervisor

import "errors"

// GuardMemory keeps this process' memory out of core files and away from the user's other processes
// (invariant 8). A program that holds secrets without a supervisor, such as `msb gateway`, calls it
// before it reads them, and starts no machine of its own afterwards.
func GuardMemory() error { return errors.Join(limitCore(), hideMemory()) }
