// Command ask prints what web servers say, or "no". It is in the image of the tests, whose busybox finds no addresses of
// names: Debian's static one would load glibc's libraries for that.
//
// It protects against nothing: what it asks for is the test's.
package main
