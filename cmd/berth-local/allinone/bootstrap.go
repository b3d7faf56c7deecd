package allinone

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// bootstrap is what a machine learns from its user data: how its kubelet registers.
type bootstrap struct {
	cluster string
	labels  map[string]string
	taints  []corev1.Taint
	maxPods int64 // 0 = not given
}

// nodeConfig is the part of a nodeadm NodeConfig that decides how the node registers.
type nodeConfig struct {
	Kind string `json:"kind"`
	Spec struct {
		Cluster struct {
			Name string `json:"name"`
		} `json:"cluster"`
		Kubelet struct {
			Config struct {
				MaxPods            int64          `json:"maxPods"`
				RegisterWithTaints []corev1.Taint `json:"registerWithTaints"`
			} `json:"config"`
			Flags []string `json:"flags"`
		} `json:"kubelet"`
	} `json:"spec"`
}

const nodeConfigType = "application/node.eks.aws"

// parseUserData reads AL2023 NodeConfigs and AL2 bootstrap scripts, MIME or bare, the way the images
// do: later parts win. User data of other families is an error that names what was found.
func parseUserData(userData string) (bootstrap, error) {
	parts, err := userDataParts(userData)
	if err != nil {
		return bootstrap{}, fmt.Errorf("read user data: %w", err)
	}
	b := bootstrap{labels: map[string]string{}}
	found := false
	for _, p := range parts {
		switch {
		case strings.HasPrefix(p.contentType, nodeConfigType):
			if err := b.readNodeConfig(p.body); err != nil {
				return bootstrap{}, err
			}
			found = true
		case strings.Contains(p.body, "/etc/eks/bootstrap.sh"):
			if err := b.readBootstrapScript(p.body); err != nil {
				return bootstrap{}, err
			}
			found = true
		}
	}
	if !found {
		return bootstrap{}, errors.New("user data has neither a nodeadm NodeConfig nor a call of /etc/eks/bootstrap.sh; " +
			"the simulated kubelet can join with the AL2023 and AL2 families only")
	}
	return b, nil
}

type userDataPart struct{ contentType, body string }

func userDataParts(userData string) ([]userDataPart, error) {
	trimmed := strings.TrimSpace(userData)
	if !strings.HasPrefix(trimmed, "MIME-Version:") && !strings.HasPrefix(trimmed, "Content-Type:") {
		return []userDataPart{{contentType: "text/x-shellscript", body: userData}}, nil
	}
	message, err := mail.ReadMessage(strings.NewReader(trimmed))
	if err != nil {
		return nil, fmt.Errorf("parse MIME header: %w", err)
	}
	mediaType, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("parse MIME Content-Type: %w", err)
	}
	if !strings.HasPrefix(mediaType, "multipart/") {
		return nil, fmt.Errorf("MIME Content-Type is %q, want multipart", mediaType)
	}
	var parts []userDataPart
	reader := multipart.NewReader(message.Body, params["boundary"])
	for {
		p, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read MIME part %d: %w", len(parts)+1, err)
		}
		var body bytes.Buffer
		if _, err := io.Copy(&body, p); err != nil {
			return nil, fmt.Errorf("read MIME part %d: %w", len(parts)+1, err)
		}
		parts = append(parts, userDataPart{contentType: p.Header.Get("Content-Type"), body: body.String()})
	}
}

func (b *bootstrap) readNodeConfig(body string) error {
	var config nodeConfig
	if err := yaml.Unmarshal([]byte(body), &config); err != nil {
		return fmt.Errorf("parse NodeConfig: %w", err)
	}
	if name := config.Spec.Cluster.Name; name != "" {
		b.cluster = name
	}
	if n := config.Spec.Kubelet.Config.MaxPods; n > 0 {
		b.maxPods = n
	}
	if taints := config.Spec.Kubelet.Config.RegisterWithTaints; taints != nil {
		b.taints = taints
	}
	for _, flag := range config.Spec.Kubelet.Flags {
		if err := b.readKubeletFlag(flag); err != nil {
			return err
		}
	}
	return nil
}

func (b *bootstrap) readBootstrapScript(body string) error {
	_, after, _ := strings.Cut(body, "/etc/eks/bootstrap.sh")
	if fields := strings.Fields(after); len(fields) > 0 {
		b.cluster = strings.Trim(fields[0], `'"`)
	}
	_, args, ok := strings.Cut(after, "--kubelet-extra-args '")
	if !ok {
		return nil
	}
	args, _, _ = strings.Cut(args, "'")
	for flag := range strings.FieldsSeq(args) {
		if err := b.readKubeletFlag(flag); err != nil {
			return err
		}
	}
	return nil
}

// readKubeletFlag takes one "--name=value" with optional quotes; flags that don't matter here pass.
func (b *bootstrap) readKubeletFlag(flag string) error {
	name, value, _ := strings.Cut(flag, "=")
	value = strings.Trim(value, `"'`)
	switch name {
	case "--node-labels":
		for pair := range strings.SplitSeq(value, ",") {
			if key, v, ok := strings.Cut(pair, "="); ok {
				b.labels[key] = v
			}
		}
	case "--register-with-taints":
		for text := range strings.SplitSeq(value, ",") {
			taint, err := parseTaint(text)
			if err != nil {
				return err
			}
			b.taints = append(b.taints, taint)
		}
	case "--max-pods":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("kubelet flag --max-pods %q is not a number", value)
		}
		b.maxPods = n
	}
	return nil
}

// parseTaint reads "key=value:effect" or "key:effect".
func parseTaint(text string) (corev1.Taint, error) {
	pair, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("taint %q has no effect; want key=value:effect", text)
	}
	key, value, _ := strings.Cut(pair, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}
