//go:build !linux

package main

import "log"

func main() { log.Fatal("bench/guest needs Linux") }
