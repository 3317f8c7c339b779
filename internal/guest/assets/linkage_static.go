//go:build !cgo

package assets

const linkage = "static"
