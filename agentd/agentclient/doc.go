// Package agentclient is the host's side of the guest's PID 1: it opens the
// session over a byte stream that already exists, runs processes, and serves
// the same session on to further clients of the host.
//
//	VMM's stream ─► Dial (handshake) ─► Client ─► Exec, Connect, SetClock, Stats, Shutdown
//	                                       └────► Serve ─► unix socket ─► Attach
//
// The guest of a machine that was saved is asked to leave its old session first (Rejoin).
//
// The guest is hostile. A frame that is huge, cut, unknown or out of order ends
// the session with a named error (ErrProtocol, errTooLarge, ErrAgentDead), and
// what is held in memory for the guest is bounded by the limits of agentpb
// times the number of calls that the host itself has open.
//
// It does not protect the terminal: output is handed over byte for byte, and
// escape sequences in it are the business of whoever shows it. It does not
// judge what Stats says: a guest can report any number. A guest that answers
// nothing is noticed only by deadlines of the caller's contexts.
package agentclient
