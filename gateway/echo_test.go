package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

func TestBuiltinEchoAnswersEitherWay(t *testing.T) {
	t.Parallel()
	const hosts = "[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n"
	for name, policy := range map[string]string{
		"relayed":   hosts,
		"inspected": hosts + "[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, policy)
			resp, err := w.Client().Get("https://echo.msb.internal/x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got echo.Reply
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Path != "/x" || resp.StatusCode != http.StatusOK {
				t.Errorf("got %+v, %v", got, err)
			}
			if d := w.Dialled(); len(d) != 0 {
				t.Errorf("a host socket was opened: %v", d)
			}
		})
	}
}
