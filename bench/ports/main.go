//go:build !linux

package main

import "log"

func main() { log.Fatal("benchports needs Linux: its guest is a network namespace") }
