// Package progressbar shows what image.Store.Resolve does.
//
// On a terminal it redraws one line with bytes, rate and layers; elsewhere it
// prints one plain line for each step and each layer; with quiet, nothing. It
// never prints bytes of an image or a registry without quoting them.
package progressbar
