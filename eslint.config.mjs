import js from '@eslint/js';
import globals from 'globals';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib/', 'node_modules/', '.venv/', 'jupyter_pause_ext/', '*.config.*'] },
  js.configs.recommended,
  ...tseslint.configs.recommendedTypeChecked,
  {
    files: ['labextension/**/*.{ts,tsx}'],
    languageOptions: {
      parserOptions: { project: ['./labextension/tests/tsconfig.json'], tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I[A-Z]', match: true } }
      ],
      '@typescript-eslint/no-floating-promises': 'error',
      // Lumino's signals take a method and its object.
      '@typescript-eslint/unbound-method': 'off',
      curly: ['error', 'all'],
      eqeqeq: 'error',
      'prefer-arrow-callback': 'error'
    }
  },
  { files: ['labextension/style/*.js', 'gke_workspaces_spawner/hubapi/static/*.js'], ...tseslint.configs.disableTypeChecked },
  {
    files: ['gke_workspaces_spawner/hubapi/static/*.js'],
    languageOptions: { globals: globals.browser },
    rules: { curly: ['error', 'all'], eqeqeq: 'error' }
  }
);
