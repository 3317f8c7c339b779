// Package commandfile writes the scripts of msb install, and removes them: a sandbox as a command on the PATH. It touches no
// file that it did not make. A script is there whole or not at all, whatever kills who writes it; what a kill leaves beside
// it is removed by the next Put, a minute later.
//
// It does not care what a script does.
package commandfile
