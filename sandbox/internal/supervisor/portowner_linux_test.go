package supervisor

import "testing"

func TestOwnersAreReadFromProc(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0100007F:1F90": "127.0.0.1:8080", "00000000:0050": "0.0.0.0:80",
		"00000000000000000000000001000000:1F90": "[::1]:8080", "0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
		"": "", "01:1F90": "", "0100007F": "", "0100007F:1": "", "0100007G:1F90": "",
	} {
		got, ok := procAddress(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q is %s, %v; want %q", text, got, ok, want)
		}
	}
}
