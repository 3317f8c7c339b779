//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench/capture needs Linux: its guest is a network namespace") }
