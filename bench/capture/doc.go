// Command capture measures what a capture costs bulk transfers through the gateway: the same guest, the
// same gateway and the same server, with the capture off and on in turns (off, on, on, off), so that a
// noisy minute hits both. The guest is a network namespace with a TAP, so it needs Linux and root.
//
//	go run ./bench/capture [-seconds 1] [-rounds 10] [-dir DIR] [-check]
//
// The gateway is a process of its own, whose CPU time is read; server, guest and the bridge between TAP
// and link are another. This guest does nothing but send, so that its rows are the most that a capture can
// cost: at MTU 65520 what the guests of sandboxes could be slowed down by, at 1500 what others behind
// `msb gateway` could. The rows after those are of a real one, a sandbox on QEMU whose capture is switched while it
// runs. The capture goes to a file in -dir with the sizes that --pcap has. With -check it fails where a
// capture costs more than a tenth at MTU 1500 or of the real guest.
package main
