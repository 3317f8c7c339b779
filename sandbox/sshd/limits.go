package sshd

import "time"

const (
	// maxClients bounds the clients of one sandbox that are connected at once, those that have shown no key yet too.
	maxClients = 16

	// maxSessions and maxForwards bound the channels of one client that are open at once.
	maxSessions = 32
	maxForwards = 64

	// maxReverse bounds the ports of ssh -R, maxBack the guest's connections to the client that are open at once; others
	// wait to be accepted.
	maxReverse = 16
	maxBack    = 32

	// maxChannels bounds the channels of all clients of a sandbox. Each holds up to 2 MiB of what the guest has not read
	// yet (the window of x/crypto/ssh, which can't be made smaller). One client that hangs leaves room for others.
	maxChannels = 160

	// xauthWait is for a guest that is busy.
	xauthWait = 10 * time.Second

	// maxVariables and maxVariable, in bytes of NAME=value, bound what a session keeps before its command starts.
	maxVariables = 64
	maxVariable  = 4096

	// maxCommand bounds a command line, in bytes: Linux takes no longer argument (MAX_ARG_STRLEN).
	maxCommand = 128<<10 - 1

	// greetingWait is how long a client may take until it has shown its key.
	greetingWait = time.Minute

	// hangupWait is what a command gets to end after SIGHUP, when its client has gone. What it left in the background
	// runs on, unless the command itself has to be killed.
	hangupWait = 5 * time.Second
)
