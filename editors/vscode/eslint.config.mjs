import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    files: ["**/*.js"],
    languageOptions: {
      sourceType: "commonjs",
      globals: { require: "readonly", module: "writable", process: "readonly", __dirname: "readonly" },
    },
    rules: { eqeqeq: "error", "prefer-const": "error", "no-var": "error" },
  },
];
