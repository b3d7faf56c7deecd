package ec2sim

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseForm(t *testing.T) {
	t.Parallel()
	f, bad := parseForm("Action=X&Filter.2.Name=b&Filter.10.Name=c&Filter.1.Name=a&Filter.1.Value.1=x%20y&Filter.zero.Name=no&Filter.01.Name=no&Flag=true&N=7")
	require.Nil(t, bad)
	var names []string
	for _, n := range f.list("Filter") {
		names = append(names, n.str("Name"))
	}
	require.Equal(t, []string{"a", "b", "c"}, names)
	require.Equal(t, []string{"x y"}, f.list("Filter")[0].strs("Value"))
	n, bad := f.integer("N", 0)
	require.Nil(t, bad)
	require.Equal(t, 7, n)
	require.True(t, f.has("Filter"))
	require.False(t, f.has("Filter.3"))
	require.Empty(t, f.str("No.Such.Member"))
}

func TestFingerprintIgnoresOrderAndToken(t *testing.T) {
	t.Parallel()
	a, _ := parseForm("Action=X&A=1&B=2&ClientToken=p")
	b, _ := parseForm("B=2&ClientToken=q&A=1&Action=X")
	c, _ := parseForm("Action=X&A=1&B=3&ClientToken=p")
	require.Equal(t, a.fingerprint, b.fingerprint)
	require.NotEqual(t, a.fingerprint, c.fingerprint)
}

func TestWildcard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbbc", true}, {"a*c", "abbb", false},
		{"?", "", false}, {"?", "é", true}, {"a?c", "abc", true}, {"**b", "aab", true}, {"*a*a*a*b", strings.Repeat("a", 2000), false},
		{`\*`, "*", true}, {`\*`, "x", false}, {`\?x`, "?x", true}, {`a\`, `a\`, true}, {"abc", "abcd", false}, {"*cd", "abcdcd", true},
	}
	for _, tc := range tests {
		require.Equal(t, tc.want, wildcard(tc.pattern, tc.s), "%q on %q", tc.pattern, tc.s)
	}
}

func TestXMLEscapes(t *testing.T) {
	t.Parallel()
	w := xmlWriter{}
	w.text("a", "<&>\"\x00\n\xff")
	require.Equal(t, "<a>&lt;&amp;&gt;&#34;\uFFFD&#10;\uFFFD</a>", string(w.buf))
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	var j journal
	body := strings.Repeat("x", 1<<20)
	for i := range 200 {
		j.add(Call{Action: "A", Body: body, Code: fmt.Sprint(i)})
	}
	require.Equal(t, 200, j.counts["A"])
	require.LessOrEqual(t, j.bytes, maxCallBytes)
	require.Equal(t, "199", j.calls[len(j.calls)-1].Code)
}

func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	table := newTokenTable()
	for i := range maxTokens + 10 {
		f, bad := parseForm("Action=X&ClientToken=" + fmt.Sprint(i))
		require.Nil(t, bad)
		table.keep(&request{action: "X", form: f}, nil)
	}
	require.Len(t, table.replies, maxTokens)
}

func fleetBody(token string) string {
	v := url.Values{"Action": {"CreateFleet"}, "Version": {"2016-11-15"}, "Type": {"instant"}, "ClientToken": {token},
		"TargetCapacitySpecification.TotalTargetCapacity":                        {"1"},
		"TargetCapacitySpecification.DefaultTargetCapacityType":                  {"spot"},
		"SpotOptions.AllocationStrategy":                                         {"price-capacity-optimized"},
		"LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName": {"node"},
	}
	return v.Encode()
}

// BenchmarkCreateFleet is one request with 180 overrides, body to body.
func BenchmarkCreateFleet(b *testing.B) {
	server, err := New(Options{})
	require.NoError(b, err)
	defer server.Close()
	call := func(body string) string {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		reply, err := io.ReadAll(w.Body)
		require.NoError(b, err)
		require.Equal(b, http.StatusOK, w.Code, string(reply))
		return string(reply)
	}
	image, ok := server.images.parameter("/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/recommended/image_id")
	require.True(b, ok)
	call("Action=CreateLaunchTemplate&Version=2016-11-15&LaunchTemplateName=node&LaunchTemplateData.ImageId=" + image)
	var overrides strings.Builder
	n := 0
	for _, e := range server.types.list {
		for _, sn := range server.subnets {
			if n < 180 && e.Architectures[0] == "x86_64" && e.offers(sn.Zone) && e.spotCapable() {
				n++
				p := fmt.Sprintf("&LaunchTemplateConfigs.1.Overrides.%d.", n)
				overrides.WriteString(p + "InstanceType=" + e.Name + p + "SubnetId=" + sn.ID + p + "AvailabilityZone=" + sn.Zone + p + "ImageId=" + image + p + "Priority=0.1")
			}
		}
	}
	i := 0
	for b.Loop() {
		i++
		reply := call(fleetBody(fmt.Sprint(i)) + overrides.String())
		if i == 1 {
			require.Contains(b, reply, "<instanceIds><item>i-")
		}
	}
}

func BenchmarkDescribeInstanceTypes(b *testing.B) {
	server, err := New(Options{})
	require.NoError(b, err)
	defer server.Close()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("Action=DescribeInstanceTypes&Version=2016-11-15&MaxResults=100"))
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
	}
}
