// Command mkparts packs the guest's parts: the agent's root disk and the image
// called "builtin". The same inputs give the same bytes. guest/build.sh runs it.
package main
