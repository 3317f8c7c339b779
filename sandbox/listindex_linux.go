package sandbox

import "golang.org/x/sys/unix"

func stampFrom(st *unix.Stat_t) stamp {
	return stamp{st.Dev, st.Ino, st.Mtim.Nano(), st.Ctim.Nano()}
}
