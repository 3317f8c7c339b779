package sandbox

import "golang.org/x/sys/unix"

func stampFrom(st *unix.Stat_t) stamp {
	return stamp{st.Dev, st.Ino, [2]int64{st.Mtim.Sec, st.Mtim.Nsec}, [2]int64{st.Ctim.Sec, st.Ctim.Nsec}}
}
