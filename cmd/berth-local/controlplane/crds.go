package controlplane

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// InstallCRDs creates or updates the definitions and waits until the API server serves them.
func InstallCRDs(ctx context.Context, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make CRD client: %w", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, definition := range definitions {
		_, err := crds.Create(ctx, definition, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			current, getErr := crds.Get(ctx, definition.Name, metav1.GetOptions{})
			if getErr != nil {
				return fmt.Errorf("get CRD %s: %w", definition.Name, getErr)
			}
			updated := definition.DeepCopy()
			updated.ResourceVersion = current.ResourceVersion
			_, err = crds.Update(ctx, updated, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write CRD %s: %w", definition.Name, err)
		}
	}
	for _, definition := range definitions {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
			current, err := crds.Get(ctx, definition.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range current.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("wait until CRD %s is established: %w", definition.Name, err)
		}
	}
	return nil
}
