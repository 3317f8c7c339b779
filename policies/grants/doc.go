// Package grants says what a policy takes from the host: the sources of its
// secrets and the hosts that get them, images and files of this machine, private
// ranges, targets of [hosts], resolvers, a proxy, extra roots. Whoever runs a
// policy that somebody else wrote approves these, and nothing but these: public
// registries, presets and "builtin:" take nothing.
//
// Of computes a policy's grants, and a copy of the policy whose sources are held
// to what was found: the real path of a file or program, the content of what the
// writer of the policy may change. Whoever reads a source checks that again
// (Hold's user is package secretproxy/secretstore).
//
// # What it doesn't protect against
//
// A program outside of the policy's directory is taken to do what its name says,
// and a script inside of it is known by its own bytes: what either of them reads
// elsewhere is not looked at. Files are compared by path and content at the time
// of the check; a process that may write to the policy's directory can change
// the files of a command that reaches into it (Hold.Content) while it runs.
package grants
