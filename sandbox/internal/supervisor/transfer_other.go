//go:build !linux

package supervisor

// Reserve implements agentclient.TransferFile.
func (transferFile) Reserve(off, n int64) error { return nil }
