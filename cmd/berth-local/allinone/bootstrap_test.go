package allinone

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const al2023UserData = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 10
--//
Content-Type: application/node.eks.aws

# generated
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster: {apiServerEndpoint: "https://x", name: demo}
  kubelet:
    config:
      maxPods: 29
      registerWithTaints: [{effect: NoExecute, key: karpenter.sh/unregistered}]
    flags: ['--node-labels="team=a,karpenter.sh/nodepool=default"']
--//--
`

const al2UserData = `#!/bin/bash -xe
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://x' \
--kubelet-extra-args '--node-labels="team=a" --register-with-taints="dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=29'
`

func TestParseUserData(t *testing.T) {
	t.Parallel()
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	tests := map[string]struct {
		userData string
		want     bootstrap
		wantErr  string
	}{
		"AL2023: the last NodeConfig wins": {
			userData: al2023UserData,
			want: bootstrap{
				cluster: "demo", maxPods: 29, taints: []corev1.Taint{unregistered},
				labels: map[string]string{"team": "a", "karpenter.sh/nodepool": "default"},
			},
		},
		"AL2: flags of the bootstrap script": {
			userData: al2UserData,
			want: bootstrap{
				cluster: "demo", maxPods: 29, labels: map[string]string{"team": "a"},
				taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}, unregistered},
			},
		},
		"nothing that joins":   {userData: "#!/bin/sh\ntrue\n", wantErr: "neither a nodeadm NodeConfig"},
		"MIME without closing": {userData: "MIME-Version: 1.0\nContent-Type: text/plain\n\nx", wantErr: "want multipart"},
		"taint without effect": {
			userData: "/etc/eks/bootstrap.sh 'demo' --kubelet-extra-args '--register-with-taints=a'",
			wantErr:  `taint "a" has no effect`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseUserData(tc.userData)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}
