package simnet

import (
	"bufio"
	"encoding/json"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// headersAnswer is the result of spec §2.4.
type headersAnswer struct {
	Status  int
	Method  string
	PeerIP  string `json:"peer_ip"`
	Headers map[string]*string
}

// agreesWithCurl compares status and headers, or how the request failed.
func agreesWithCurl(t *testing.T, n *internet, r *runner, a *agreement) {
	sideBySide(t, serving(nameHosts(), tlsHosts(), certificateHosts(), httpHosts(), answerHosts()), func(t *testing.T, name string) {
		host := strings.TrimSuffix(name, ".example.com")
		var got headersAnswer
		code := lookUp(t, r, catalog.Headers(), name, &got)
		address := got.PeerIP
		if code != "" {
			address = n.hosts[name].addrs[0]
		}
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		fetch := func(seconds string) (string, int) {
			return run(t, patience, nil, "", "curl", "-sSkI", "--max-time", seconds, "--http1.1", "--tlsv1.0", "--ciphers", "ALL:COMPLEMENTOFALL:@SECLEVEL=0",
				"--resolve", name+":443:"+address, "https://"+name+"/")
		}
		printed, status := fetch("6")
		if status == 28 && !strings.HasSuffix(code, "_timeout") { // this machine is slow, not the host
			printed, status = fetch("40")
		}
		a.compare(host, "outcome", code, curlFailure(status))
		if code != "" || status != 0 {
			return
		}
		// curl prints interim answers as well.
		printed = strings.TrimSuffix(strings.ReplaceAll(printed, "\r\n", "\n"), "\n\n")
		printed = printed[strings.LastIndex(printed, "\n\n")+1:]
		first, rest, _ := strings.Cut(strings.TrimLeft(printed, "\n"), "\n")
		fields := strings.Fields(first)
		a.compare(host, "status", strconv.Itoa(got.Status), fields[1])
		theirs, err := textproto.NewReader(bufio.NewReader(strings.NewReader(strings.TrimRight(rest, "\n") + "\n\n"))).ReadMIMEHeader()
		if err != nil {
			t.Fatalf("curl printed %q: %v", rest, err)
		}
		for key, value := range got.Headers {
			a.compare(host, key, text(t, value), text(t, firstOf(theirs.Values(key))))
		}
	})
}

func firstOf(values []string) *string {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// text is a value as JSON, which tells null from empty.
func text(t *testing.T, v *string) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// curlFailure is what an exit status of curl is for the service.
func curlFailure(status int) string {
	switch status {
	case 0:
		return ""
	case 7:
		return string(fault.ConnectFailed)
	case 28:
		return string(fault.HeadersTimeout)
	case 35, 60:
		return string(fault.HandshakeFailed)
	case 1, 8, 43, 52, 56, 61:
		return string(fault.HTTPFailed)
	}
	return "curl ended with " + strconv.Itoa(status)
}
