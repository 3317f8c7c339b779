//go:build !linux

package main

import "fmt"

func main() { fmt.Println("benchnet needs Linux: its guest is a network namespace") }
