//go:build !linux

package main

import "log"

func main() { log.Fatal("bench/life needs Linux") }
