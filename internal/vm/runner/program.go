package runner

import "io"

// Program opens the small program that VMMs start in (vm/vmm), which this build may carry. Nil, and every error, mean that
// they start in the program that runs.
type Program func() (io.ReadCloser, error)
