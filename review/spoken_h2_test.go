package review_test

import (
	"net/http"

	"github.com/msb-project/msb/review/pcapgen"
)

// h2Scripts are attacks inside HTTP/2.
func h2Scripts() map[string]script {
	return map[string]script{
		"spoken-h2-coalescing": oneNameForAConnection,
	}
}

func oneNameForAConnection(s *session) {
	web := s.siteWith("good.example", goodSite, s.CA.Certificate("good.example", "other.example"), nil)
	k := s.h2("good.example")
	k.ask(1, h2get("good.example", "/repos/a", "authorization", "Bearer "+s.token())).is(http.StatusOK, "hello from good.example")
	s.addr("other.example")
	k.ask(3, h2get("other.example", "/b", "authorization", "Bearer "+s.token())).refused(http.StatusMisdirectedRequest, "host_mismatch")
	k.ask(5, h2get("evil.example", "/repos/c")).refused(http.StatusMisdirectedRequest, "host_mismatch")
	k.ask(7, h2get("GOOD.example:443", "/repos/d")).is(http.StatusOK, "hello from good.example")
	s.h2("other.example").ask(1, h2get("other.example", "/b")).is(http.StatusOK, "hello from good.example")
	all := web.got("GET /repos/a", "GET /repos/d", "GET other.example/b")
	if all[0].credentials() != "Bearer "+pcapgen.SecretValue {
		s.t.Errorf("the right server got %q", all[0].credentials())
	}
	s.dialled("tcp " + goodSite)
}
