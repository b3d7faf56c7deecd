package app

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	schedulerconfig "github.com/berth-dev/berth/manifests/scheduler-config"
)

// leaseName is our own: two schedulers with different profiles do not exclude each other.
const leaseName = "berth"

// connection overrides how the configuration says to reach the API server; zero fields do not.
type connection struct {
	kubeconfig, contentType string
	qps, burst              float64
}

// configuration returns the KubeSchedulerConfiguration to run with: the file's, or the shipped one with
// the connection that flags ask for. One that names no lease gets ours, instead of the one that a
// kube-scheduler beside it holds.
func configuration(file string, c connection) ([]byte, error) {
	raw := schedulerconfig.Default
	if file != "" {
		var err error
		if raw, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--config has the value %q: %w", file, err)
		}
	}
	js, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("parse KubeSchedulerConfiguration %q: %w", file, err)
	}
	var content map[string]any
	if err := yaml.Unmarshal(js, &content); err != nil {
		return nil, fmt.Errorf("parse KubeSchedulerConfiguration %q: %w", file, err)
	}
	if content == nil {
		return nil, fmt.Errorf("parse KubeSchedulerConfiguration %q: it is empty", file)
	}
	if section, ok := sectionOf(content, "leaderElection"); ok && (section["resourceName"] == nil || section["resourceName"] == "") {
		section["resourceName"] = leaseName
	}
	if section, ok := sectionOf(content, "clientConnection"); ok {
		if c.kubeconfig != "" {
			section["kubeconfig"] = c.kubeconfig
		}
		if c.contentType != "" {
			section["contentType"] = c.contentType
		}
		if c.qps != 0 {
			section["qps"] = c.qps
		}
		if c.burst != 0 {
			section["burst"] = c.burst
		}
	}
	return yaml.Marshal(content)
}

// sectionOf returns the named object, adding an empty one when there is none; false when something else
// has the name, which the decoder will complain about.
func sectionOf(content map[string]any, name string) (map[string]any, bool) {
	if content[name] == nil {
		content[name] = map[string]any{}
	}
	section, ok := content[name].(map[string]any)
	return section, ok
}

// kubeconfig writes the client configuration in the form that the upstream options read. Files it
// refers to stay referred to.
func kubeconfig(c *rest.Config) ([]byte, error) {
	if c.AuthProvider != nil || c.Transport != nil || c.Dial != nil || c.WrapTransport != nil {
		return nil, errors.New("the client configuration has a transport of its own, which cannot be passed on")
	}
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{
		Server: c.Host, TLSServerName: c.ServerName, InsecureSkipTLSVerify: c.Insecure,
		CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData,
	}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificate: c.CertFile, ClientCertificateData: c.CertData, ClientKey: c.KeyFile, ClientKeyData: c.KeyData,
		Token: c.BearerToken, TokenFile: c.BearerTokenFile, Username: c.Username, Password: c.Password, Exec: c.ExecProvider,
		Impersonate: c.Impersonate.UserName, ImpersonateGroups: c.Impersonate.Groups,
	}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	raw, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return raw, nil
}

// oneTimeFile offers bytes to code that reads a file by its path, once, without touching a disk: the
// root file system may be read-only, and credentials do not belong on it. close must be called when the
// reader is done.
func oneTimeFile(content []byte) (path string, closeFile func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", nil, fmt.Errorf("open pipe: %w", err)
	}
	go func() {
		_, _ = w.Write(content) // fails only when the reader is closed unread
		_ = w.Close()
	}()
	return fmt.Sprintf("/dev/fd/%d", r.Fd()), func() { _ = r.Close() }, nil
}
